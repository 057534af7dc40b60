"""How a model is made: scan, pre-train, discover, retrain, evaluate, report; the command line."""
