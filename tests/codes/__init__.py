"""Tests of codes; a package so that its modules can share `laws`."""
