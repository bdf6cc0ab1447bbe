"""Training on paddlenlp's Trainer: arguments, model, data, the loop's reports, evaluation."""
