"""Tensors that have a size and no values: a model's forward and backward pass replayed to see what is alive when.

autograd.py counts bytes over time, keeps what Paddle's gradient nodes keep and runs them in its order; operators.py
says what each operator saves; launch/families has the models written in these operators.
"""
