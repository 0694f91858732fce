"""The map of DoomMyWayHome+: ViZDoom's own `my_way_home` with one start, derived into a cache folder at first use.

In the original a script sets the player down at one of 17 spots, facing anywhere. Here all spots are moved to the first, and
the angle that the script draws is bounded. A map with other spots or another script is refused. We keep no map.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import re
import struct
import tempfile
from pathlib import Path

import numpy as np
import vizdoom

from ex2.arrays import Array
from ex2.errors import UsageError

START = (240.0, -176.0)  # map units
VEST = (1040.0, -352.0)
HEADINGS = 0.01  # of a full turn: the player faces 0 to 3.6 degrees, 0 is along +x
SPOT, SPOTS = 9001, 17  # the kind of thing that a map spot is, and how many the script draws from
ARMOUR = 2018  # the kind of thing that the vest is


def read_lumps(wad: bytes) -> list[tuple[bytes, bytes]]:
    """The named parts of a WAD file, in their order."""
    kind, count, directory = struct.unpack_from("<4sii", wad)
    if kind not in (b"IWAD", b"PWAD"):
        raise ValueError("no WAD file")
    entries = [struct.unpack_from("<ii8s", wad, directory + 16 * index) for index in range(count)]
    return [(name, wad[begin : begin + size]) for begin, size, name in entries]


def write_lumps(lumps: list[tuple[bytes, bytes]]) -> bytes:
    """A WAD file of these parts."""
    begins = itertools.accumulate((len(content) for _, content in lumps), initial=12)
    entries = [struct.pack("<ii8s", begin, len(content), name) for begin, (name, content) in zip(begins, lumps, strict=False)]
    body = b"".join(content for _, content in lumps)
    return struct.pack("<4sii", b"PWAD", len(lumps), 12 + len(body)) + body + b"".join(entries)


def blocks(textmap: str, kind: str) -> list[dict[str, str]]:
    """What the map's text says of each thing, vertex or line."""
    found = re.findall(rf"\b{kind}\b[^{{]*\{{([^}}]*)\}}", textmap)
    return [dict(re.findall(r"(\w+)\s*=\s*([^;]+);", block)) for block in found]


def one_start(textmap: str) -> str:
    """The map's text with every spot at the start, so that whichever the script draws, the player begins there."""

    def moved(thing: re.Match[str]) -> str:
        text = thing.group(0)
        if not re.search(rf"\btype\s*=\s*{SPOT}\s*;", text):
            return text
        for axis, value in zip("xy", START, strict=True):
            text = re.sub(rf"\b{axis}\s*=\s*[-\d.]+\s*;", f"{axis} = {value:.3f};", text)
        return text

    places: dict[int, list[tuple[float, float]]] = {SPOT: [], ARMOUR: []}
    for thing in blocks(textmap, "thing"):
        places.get(int(thing["type"]), []).append((float(thing["x"]), float(thing["y"])))
    if len(places[SPOT]) != SPOTS:
        raise ValueError(f"it has {len(places[SPOT])} spots instead of {SPOTS}")
    if START not in places[SPOT] or places[ARMOUR] != [VEST]:
        raise ValueError(f"it has no spot at {START}, or its vest is not at {VEST}")
    return re.sub(r"\bthing\b[^{]*\{[^}]*\}", moved, textmap)


def one_heading(behavior: bytes) -> bytes:
    """The compiled script with the player's angle drawn from 0 to `HEADINGS` of a turn instead of from a whole one.

    The instructions are: push the number 1.0 (16.16 fixed point), draw below it, set the angle.
    """
    push, draw_and_set = b"\x03", b"\x39\xf0\x24"
    whole, part = (push + struct.pack("<i", round(65_536 * turns)) + draw_and_set for turns in (1.0, HEADINGS))
    if behavior.count(whole) != 1:
        raise ValueError("its script does not set the player's angle as expected")
    return behavior.replace(whole, part)


def installed_map() -> Path:
    """The original, as vizdoom has it."""
    return Path(vizdoom.scenarios_path) / "my_way_home.wad"


def derive_map(source: Path) -> bytes:
    """MyWayHome+ from the installed my_way_home.wad."""
    lumps = []
    for name, content in read_lumps(source.read_bytes()):
        label = name.rstrip(b"\0")
        if label == b"TEXTMAP":
            content = one_start(content.decode()).encode()
        elif label == b"BEHAVIOR":
            content = one_heading(content)
        lumps.append((name, content))
    if not {b"TEXTMAP", b"BEHAVIOR"} <= {name.rstrip(b"\0") for name, _ in lumps}:
        raise ValueError("it has no map, or no script")
    return write_lumps(lumps)


def walls() -> Array:
    """The ends of the map's walls, [M, 2, 2]."""
    lumps = dict(read_lumps(installed_map().read_bytes()))
    text = next(content for name, content in lumps.items() if name.startswith(b"TEXTMAP")).decode()
    corners: Array = np.array([[float(block["x"]), float(block["y"])] for block in blocks(text, "vertex")])
    lines = [[int(block["v1"]), int(block["v2"])] for block in blocks(text, "linedef") if block.get("twosided") != "true"]
    walls: Array = corners[np.array(lines)]
    return walls


def cache_folder() -> Path:
    """Where derived files are kept: EX2_CACHE, or the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("EX2_CACHE") or Path(base) / "ex2")


def find_map(folder: Path | None = None) -> Path:
    """The derived map, written at first use; its name holds a fingerprint of its content, so an old one is never used."""
    source = installed_map()
    try:
        content = derive_map(source)
    except (OSError, ValueError, struct.error) as error:
        raise UsageError(
            f"The map {source.name} of the installed vizdoom cannot be used ({error}): install vizdoom 1.3."
        ) from None
    folder = folder or cache_folder()
    target = folder / f"my_way_home_plus-{hashlib.sha256(content).hexdigest()[:12]}.wad"
    if target.exists() and target.read_bytes() == content:
        return target
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as draft:
            draft.write(content)
        os.replace(draft.name, target)
    except OSError as error:
        with contextlib.suppress(OSError, NameError):
            os.unlink(draft.name)
        raise UsageError(
            f"The map cannot be written to {folder} ({error.strerror}): name a folder that can in the variable EX2_CACHE."
        ) from None
    return target
