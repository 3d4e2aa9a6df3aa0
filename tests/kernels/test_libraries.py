#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_libraries.py VENDORS:LIBRARY... -- IMAGE...

A library holds the images of its vendors (nvidia, amd, nvidia+amd), byte for byte as the
build packed them, and none of the other's.
"""

import os
import sys


def read(path):
    with open(path, "rb") as file:
        return file.read()


def as_carried(image):
    """The bytes of `image` as they lie in a library."""
    folder, name = os.path.split(image)
    vendor = os.path.basename(folder)
    target = name.split(".")[0].replace("motet-", "")
    packed = os.path.join(folder, "..", f"{vendor}_{target}.zst")
    return vendor, read(packed if os.path.exists(packed) else image)


def main():
    words = sys.argv[1:]
    rows, images = words[: words.index("--")], words[words.index("--") + 1 :]
    libraries = [(*row.split(":", 1), read(row.split(":", 1)[1])) for row in rows]
    failures = 0
    for image in images:
        vendor, content = as_carried(image)
        for vendors, path, library in libraries:
            there = content in library
            if there != (vendor in vendors.split("+")):
                print(f"{path}: {image} is {'' if there else 'not '}in it")
                failures += 1
    print(f"libraries: {len(images)} images in {len(libraries)} libraries, {failures} failures")
    return 1 if failures or not images or not libraries else 0


if __name__ == "__main__":
    sys.exit(main())
