"""What is looked at while a run goes: its loss, whether it moves at all, what it was doing when memory ran out."""
