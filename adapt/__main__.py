"""python -m scda.adapt: the same as scda-adapt."""

from scda.adapt.cli.main import main

main()
