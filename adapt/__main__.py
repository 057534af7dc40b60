"""python -m scda.adapt: the same as scda-adapt."""

from scda.adapt.cli import main

main()
