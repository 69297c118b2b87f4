"""What a reduction gains and what it costs, on your own model.

`speed.bench`, `evaluation.evaluate` and `explanation.explain` are `todome.bench`, `todome.evaluate`, `todome.explain`.
"""
