"""Encode and decode SciPy, scikit-learn, xarray and PyTorch objects as typed values.

The one rule: whatever compiled code trusts is checked before an object holds it. Each library has
an import of its own.
"""
