"""Training on paddlenlp's Trainer: arguments, model, data, order of samples, evaluation."""
