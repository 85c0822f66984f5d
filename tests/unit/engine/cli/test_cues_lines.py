"""The lines of ``rowsieve cues``: accuracies stay on one line, however many classes there are."""

from engine.cli.cues import accuracies


def test_accuracies_stand_in_the_order_of_the_classes() -> None:
    assert accuracies({"low": 0.5, "middle": None, "a long name of a class": 0.987}) == "0.50 – 0.99"
    assert accuracies({str(n): 1.0 for n in range(9)}) == "1.00 1.00 1.00 1.00 1.00 1.00 ..."
