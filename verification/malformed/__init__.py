"""Malformed headers and frames, generated from honest ones, read in a child that must survive.

The one contract: headers and frames give a value or a SafeserError, and a value that was accepted
can be used. No crash, no hang, no foreign exception, no module imported, no file opened, no memory
beyond a bound; not while it is read, and none of the first two while it is used.

To plug your types in, add one file to ``tests/samples/values/`` (its name becomes the
first half of an example's name, as in ``arrays/fortran``) with

    def examples() -> dict[str, object]:
        return {"name": an object that safeser.families.serialize takes, ...}

Small objects find more: a case changes one to three places. Where a value of yours can be used in
ways that ``tests/samples/uses.py`` does not know, add beside it

    def uses(value: object) -> Iterator[Callable[[], object]]:
        if isinstance(value, Mine):
            yield value.total

Each use is called by itself, may raise any ordinary exception, and may not crash. Then

    python -m verification.malformed --cases 100000 --seed 1 --only arrays
    python -m verification.malformed --only arrays/fortran --seed 1 --case 4711 --show

A case depends on its seed, its example's name and its number there alone, and on the other
examples, from which it may take parts. The suite runs a short share of all of them by itself.
"""
