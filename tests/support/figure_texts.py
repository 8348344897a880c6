"""What a figure says."""

import matplotlib as mpl


def texts(figure):
    return [t.get_text() for t in figure.findobj(mpl.text.Text) if t.get_text()]
