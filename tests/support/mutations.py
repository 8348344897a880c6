"""Damage to files: bytes changed as disks, networks, people and other programs change them."""

import json
import re
from collections.abc import Callable, Iterator, Sequence

import numpy as np

Mutation = Callable[[np.random.Generator, bytes, Sequence[bytes]], bytes]


def flipped_bits(rng, content, others):
    """One to eight bits."""
    changed = bytearray(content)
    for place in rng.integers(0, len(changed), rng.integers(1, 9)):
        changed[place] ^= 1 << int(rng.integers(8))
    return bytes(changed)


def changed_byte(rng, content, others):
    changed = bytearray(content)
    changed[rng.integers(len(changed))] = rng.integers(256)
    return bytes(changed)


def truncated(rng, content, others):
    return content[: rng.integers(len(content))]


def missing_start(rng, content, others):
    return content[rng.integers(1, len(content)) :]


def missing_block(rng, content, others):
    a, b = np.sort(rng.integers(0, len(content) + 1, 2))
    return content[:a] + content[b:]


def missing_line(rng, content, others):
    lines = content.splitlines(keepends=True)
    del lines[rng.integers(len(lines))]
    return b"".join(lines)


def zeroed_block(rng, content, others):
    """As a file system leaves a page that was never written."""
    a, b = np.sort(rng.integers(0, len(content) + 1, 2))
    return content[:a] + bytes(int(b - a)) + content[b:]


def swapped_blocks(rng, content, others):
    a, b, c = np.sort(rng.integers(0, len(content) + 1, 3))
    return content[:a] + content[b:c] + content[a:b] + content[c:]


def repeated_block(rng, content, others):
    a, b = np.sort(rng.integers(0, len(content) + 1, 2))
    return content[:b] + content[a:b] + content[b:]


def inserted(rng, content, others):
    a = rng.integers(len(content) + 1)
    return content[:a] + rng.bytes(int(rng.integers(1, 40))) + content[a:]


def appended(rng, content, others):
    return content + rng.choice(np.array([b"\n", b"\0", b" ", b"{}", b"\n{}\n"], object))


def empty(rng, content, others):
    return b""


def other_file(rng, content, others):
    """The content of another kind of file."""
    return others[rng.integers(len(others))]


def start_of_another(rng, content, others):
    other = others[rng.integers(len(others))]
    at = rng.integers(min(len(content), len(other)))
    return other[:at] + content[at:]


def changed_number(rng, content, others):
    """A number in the text: a header of a safetensors file, or JSON."""
    numbers = list(re.finditer(rb"(?<![0-9a-f.])\d+(?![0-9a-f.])", content))
    if not numbers:
        return flipped_bits(rng, content, others)
    at = numbers[rng.integers(len(numbers))]
    choices = (b"0", b"1", b"-1", b"7", b"1000000000", b"99999999999999999999", b"1e308", b"1.5", b"null")
    return content[: at.start()] + choices[rng.integers(len(choices))] + content[at.end() :]


def header_length(rng, content, others):
    """Of a safetensors file: the eight bytes at its start."""
    lengths = (0, 1, 2**31, 2**63 - 1, 2**64 - 1, len(content), int(rng.integers(2 * len(content))))
    return int(lengths[rng.integers(len(lengths))]).to_bytes(8, "little") + content[8:]


def huge_shape(rng, content, others):
    """A header that claims an array of exabytes."""
    shapes = list(re.finditer(rb'"shape":\[([^\]]*)\]', content))
    if not shapes:
        return changed_number(rng, content, others)
    at = shapes[rng.integers(len(shapes))]
    axes = at[1].split(b",")
    axes[rng.integers(len(axes))] = b"1000000000000"
    return _with_header(content, content[: at.start(1)] + b",".join(axes) + content[at.end(1) :])


def repeated_name(rng, content, others):
    """A JSON object with the same name twice."""
    entries = list(re.finditer(rb'"[a-z_.]+": ?[-0-9a-z".]+,', content))
    if not entries:
        return repeated_block(rng, content, others)
    entry = entries[rng.integers(len(entries))]
    return _with_header(content, content[: entry.end()] + entry[0] + content[entry.end() :])


def renamed(rng, content, others):
    """A name or a word of the text, with one letter less."""
    words = list(re.finditer(rb'"([A-Za-z_.]{3,})"', content))
    if not words:
        return flipped_bits(rng, content, others)
    word = words[rng.integers(len(words))]
    return _with_header(content, content[: word.end(1) - 1] + content[word.end(1) :])


def other_line_ends(rng, content, others):
    """As a tool that takes it for text leaves it."""
    return content.replace(b"\n", b"\r\n") if b"\n" in content else content + b"\r\n"


def changed_version(rng, content, others):
    versions = (b'"1"', b'"2"', b'"99"', b"3", b'""')
    return re.sub(rb'"version": ?"\d+"', b'"version":' + versions[rng.integers(len(versions))], content)


MUTATIONS: tuple[Mutation, ...] = (
    flipped_bits,
    changed_byte,
    truncated,
    missing_start,
    missing_block,
    missing_line,
    zeroed_block,
    swapped_blocks,
    repeated_block,
    inserted,
    appended,
    empty,
    other_file,
    start_of_another,
    changed_number,
    header_length,
    huge_shape,
    repeated_name,
    renamed,
    other_line_ends,
    changed_version,
)


def mutated(seed: int, content: bytes, others: Sequence[bytes], count: int) -> Iterator[tuple[str, bytes]]:
    """So many damaged contents, by name of the mutation: all mutations in turn."""
    rng = np.random.default_rng(seed)
    for i in range(count):
        mutation = MUTATIONS[i % len(MUTATIONS)]
        yield mutation.__name__, mutation(rng, content, others)


def _with_header(before: bytes, after: bytes) -> bytes:
    """With the length of the header of a safetensors file made right again, if it is one."""
    length = int.from_bytes(before[:8], "little")
    if length + 8 > len(before) or before[:1] == b"{":
        return after
    return (length + len(after) - len(before)).to_bytes(8, "little") + after[8:]


def header_of(content: bytes) -> tuple[dict, bytes]:
    """Header and data of a safetensors file."""
    end = 8 + int.from_bytes(content[:8], "little")
    return json.loads(content[8:end]), content[end:]
