"""Encode the content of a pickle as a reduced tree in msgpack, for typed values.

The one rule: a tree is read into the nodes that the opcode machine makes, in the same order, so
that one judge, one set of bounds and one builder serve both encodings.

A tree is a run of msgpack scalars: operations (:mod:`safeser.pickles.trees.operations`), each with
its operands. A value as operand is a plain scalar or a list of one number: ``[3]`` refers to the
fourth node, ``[-1]`` to the first kept scalar. A node as operand is its number alone. Nodes are
numbered in the order in which they are made; each name and each buffer occurs once.
"""
