"""Tokens of values and definitions that agree between processes: :func:`tokenize`.

The one rule: an object's token depends on its content alone, never on addresses, hash seeds, the
order of sets or who shares what; where that cannot be kept, the token is random or an error.
"""

from __future__ import annotations

from safeser.tokens.tokenization import Tokenizer, tokenize, tokenize_by, tokenize_in_order

__all__ = ["Tokenizer", "tokenize", "tokenize_by", "tokenize_in_order"]
