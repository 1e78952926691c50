"""What programs register: classes, functions that take them apart, families.

The one rule: a name is registered once, by the program; no peer's byte registers or imports.
"""
