"""Boxes in the serializers of other libraries: :mod:`~safeser.boxes.kombu` and Celery,
:mod:`~safeser.boxes.huey`, :mod:`~safeser.boxes.diskcache`.

The one rule: an adapter binds what it seals to what the library will do with it, since all else of
a message (its queue, its headers, the key of a row) is in the hands of those who can write to the
broker or the disk. Where a library needs no such code, docs/how-to/boxes.md has a recipe.
"""
