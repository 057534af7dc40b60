"""How the templates of this folder become pages."""

from jinja2 import Environment, PackageLoader, StrictUndefined

from scda.models.files import printable


def page_environment() -> Environment:
    """Return the environment of the templates: values are escaped, and missing ones are errors."""
    environment = Environment(
        loader=PackageLoader("scda.adapt.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["printable"] = printable
    return environment
