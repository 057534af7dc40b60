"""The HTTP endpoint: application, inference queue, limits, routes and page."""
