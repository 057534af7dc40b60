"""Audits of image folders: labels that look wrong, copies, leaks, and poor classes."""
