"""Continuity: the classes of an earlier model, found again among those of a new one."""
