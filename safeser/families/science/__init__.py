"""SciPy, scikit-learn, xarray and PyTorch as typed values, each behind its own import.

The one rule: what compiled code would trust is checked before an object has it.
"""
