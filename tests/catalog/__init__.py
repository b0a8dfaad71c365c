"""Tests of the catalog; a package so that its modules can share `declaring`."""
