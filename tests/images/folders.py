# SPDX-License-Identifier: Apache-2.0
"""Folders and files that are no ordinary ones, on their way to `motet hostcall`.

Each makes a folder in which good.CALLS, which declares, lies as "healthy.co" and must be
found whatever is around it.
"""

import os
import socket

import good as g
import objects as o

MANY = 100000
OPEN_FILES = 64  # at once, of which the command needs a few
# Of kernels.
NAMES = ('"', "\\", "\x1b]0;title\x07", "a\nb: gfx1100: 1 kernels", "\u00e9\u2028", "\x7f")


def put(folder, name, data=g.CALLS):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "wb") as out:
        out.write(data)


def loops(folder):
    put(folder, "healthy.co")
    os.makedirs(os.path.join(folder, "below"))
    for name, to in (
        ("self", "."),
        ("up", ".."),
        ("below/top", "../../" + os.path.basename(folder)),
        ("a", "b"),
        ("b", "a"),
        ("c", "c"),
        ("gone", "no such file"),
    ):
        os.symlink(to, os.path.join(folder, name))


def specials(folder):
    put(folder, "healthy.co")
    os.mkfifo(os.path.join(folder, "fifo"))
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.getcwd()
        os.chdir(folder)  # the name of a socket has 108 bytes
        listener.bind("socket")
        os.chdir(here)
    put(folder, "empty", b"")
    put(folder, "one byte", b"\x7f")


def deep(folder):
    """A path longer than a name may be."""
    put(folder, "healthy.co")
    here = os.getcwd()
    os.chdir(folder)
    for _ in range(30):
        os.mkdir("d" * 200)
        os.chdir("d" * 200)
    with open("unreached.co", "wb") as out:
        out.write(g.CALLS)
    os.chdir(here)


def many(folder):
    """Most of them nothing, an object first and last."""
    put(folder, "000 first.co")
    for i in range(MANY):
        os.close(os.open(os.path.join(folder, f"f{i}"), os.O_CREAT | os.O_WRONLY))
    put(folder, "healthy.co")


def names(folder):
    """What a terminal or JSON would take for its own."""
    put(folder, "healthy.co")
    put(folder, 'quote " and \\ back.co')
    put(folder, "line\nend\x1b[31m.co")
    put(os.fsencode(folder), b"latin \xe9\xff.co")
    for i, name in enumerate(NAMES):
        put(folder, f"kernel {i}.co", o.code_object("gfx1100", ((name, True),)))
    put(
        folder,
        "kernel x.co",
        o.raw_object(b"\x81\xaeamdhsa.kernels\x91\x82\xa5.name\xa4\xff\xfe\xc0\x80\xa5.args\x90"),
    )


def unreadable(folder):
    put(folder, "healthy.co")
    put(folder, "secret.co")
    os.chmod(os.path.join(folder, "secret.co"), 0)
    os.makedirs(os.path.join(folder, "closed"))
    os.chmod(os.path.join(folder, "closed"), 0)
