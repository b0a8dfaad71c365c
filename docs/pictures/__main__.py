"""Draws all pictures into docs/."""

from docs.pictures.gallery import write_all

if __name__ == "__main__":
    for path in write_all():
        print(path)
