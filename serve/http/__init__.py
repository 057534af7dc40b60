"""The HTTP endpoint: application, queue, limits, routes and page."""
