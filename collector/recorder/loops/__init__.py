"""Parts of the recorder that frameworks with hand-written training loops share.

They turn iterations and reductions into steps. Recorders of Keras sum their iterations here as well.
"""
