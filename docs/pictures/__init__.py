"""The documentation's pictures, drawn from the types they are about: `python -m docs.pictures` writes docs/*.svg."""
