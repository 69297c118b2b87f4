"""Tuning: from a budget (so close to dense, or so fast) to a plan for one model, at one size, on this machine.

layer_times     what each layer's attention takes with fewer keys
sensitivity     how much each layer's reduction changes the result
choice          the best factors under a budget, as far as these two tell
search          draws the choice, and chooses again until it keeps the budget when drawn
drawings        pictures with a plan and dense; the control, fewer dense steps at the same speed
records         every measurement in a file, so that nothing is measured twice
"""
