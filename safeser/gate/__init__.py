"""The gate: who is at the other end, what they sealed, whether it may pass, and the record of that.

The one rule: no I/O, and nothing of safeser but itself; of other packages msgpack, cryptography and
NumPy. Callers move the bytes. The flow is frames -> parse -> verify -> decide -> record; read it in
this order, beside the normative ``docs/reference/envelope.md`` and ``docs/decisions/0072``:

1. ``refusals``, ``values``: the errors, and what is decided about: contexts, limits, grants;
2. ``key_pairs``, ``noise``, ``canonical``, ``claims``, ``handshake``: who is at the other end;
3. ``format`` parses a message, ``direction`` has the keys of one direction, ``session`` verifies;
4. ``decision`` decides by a table; ``event`` and ``chain`` make the lines of the log.

``safeser.channel`` joins these: it finds the payloads of a verified message, has each decided and
recorded, and only then built.
"""
