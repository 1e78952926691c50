"""Encode the content of a pickle as a reduced tree in msgpack, for typed values.

The one rule: a tree is read into the nodes that the opcode machine makes, in the same order, so
that one judge, one set of bounds and one builder serve both encodings.

A tree is a run of msgpack scalars: operations (:mod:`safeser.pickles.trees.operations`), each with
its operands. An operand is a plain value, or a list of one number: ``[3]`` stands for the node that
was made fourth, ``[-1]`` for the value that was kept first. Nodes are numbered as they are made;
each name and each buffer stands once.
"""
