"""Clusters of intents: episodes by the wording of the user's first request.

Spherical k-means (Dhillon and Modha 2001, doi:10.1023/A:1007612920971) over tf-idf weights, on an even sample of at
most 4,000 requests; all others are then assigned. Deterministic. Crude on purpose: it needs no model, and its labels
are words that a person can check. Where traces name strata, those are the truth and this only helps to look.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import TYPE_CHECKING

from flightschool.digest import derive_random

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["IntentModel", "Requests"]

_MOST_SAMPLES = 4000
_MOST_TERMS = 512
_MOST_CLUSTERS = 12
_MOST_CHARACTERS = 2000
_ROUNDS = 30
_WORD = re.compile(r"[^\W\d_]{3,}")
_STOP = frozenset(
    {
        "the", "and", "for", "you", "your", "with", "that", "this", "are", "was", "were", "will", "can", "could",
        "should", "would", "have", "has", "had", "not", "but", "from", "they", "them", "their", "there", "here",
        "what", "when", "where", "which", "who", "how", "why", "all", "any", "been", "being", "does", "did",
        "doing", "its", "into", "about", "please", "want", "need", "like", "just", "than", "then", "also", "out",
        "our", "she", "her", "his", "him", "one", "get", "got", "may", "let", "via", "per", "use", "using", "hello",
        "thanks", "thank", "make", "sure", "know", "yes",
    }
)  # fmt: skip


class Requests:
    """An even sample of requests, whatever their number."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._count = 0
        self._random = derive_random("requests")

    def add(self, text: str) -> None:
        """One more request."""
        self._count += 1
        if len(self._texts) < _MOST_SAMPLES:
            self._texts.append(text[:_MOST_CHARACTERS])
        elif (slot := self._random.randrange(self._count)) < _MOST_SAMPLES:
            self._texts[slot] = text[:_MOST_CHARACTERS]

    def model(self) -> IntentModel:
        """Clusters of the sample."""
        return IntentModel(self._texts)


def _terms(text: str) -> Counter[str]:
    words = (word.casefold() for word in _WORD.findall(text[:_MOST_CHARACTERS]))
    return Counter(word for word in words if word not in _STOP)


class IntentModel:
    """Clusters fitted to requests."""

    def __init__(self, texts: list[str]) -> None:
        counted = [_terms(text) for text in texts]
        frequency = Counter(term for terms in counted for term in terms)
        total = max(len(texts), 1)
        # A word of nearly every request tells nothing apart; one of a single request groups nothing.
        useful = [(n, term) for term, n in frequency.items() if n >= min(2, total) and n <= max(0.6 * total, 1)]
        self._index = {term: i for i, (_, term) in enumerate(sorted(useful, key=_rarest_last)[:_MOST_TERMS])}
        self._weights = [math.log(1 + total / frequency[term]) for term in self._index]
        self._centres = self._fit(counted) if self._index else None

    def cluster(self, text: str) -> tuple[int, float]:
        """Number of the nearest cluster, and the cosine to its centre; (-1, 0) if the text has no known word."""
        if self._centres is None:
            return -1, 0.0
        vector = self._vector(_terms(text))
        if not vector.any():
            return -1, 0.0
        scores = self._centres @ vector
        best = int(scores.argmax())
        return best, float(scores[best])

    def label(self, cluster: int, num_words: int = 3) -> str:
        """The most telling words of a cluster."""
        if cluster < 0 or self._centres is None:
            return "(no words)"
        terms = list(self._index)
        order = sorted(range(len(terms)), key=lambda i: (-self._centres[cluster][i], terms[i]))  # type: ignore[index]
        return " ".join(terms[i] for i in order[:num_words] if self._centres[cluster][i] > 0)

    def _vector(self, terms: Counter[str]) -> NDArray[np.float64]:
        import numpy as np

        vector = np.zeros(len(self._index))
        for term, count in terms.items():
            if (index := self._index.get(term)) is not None:
                vector[index] = (1 + math.log(count)) * self._weights[index]
        norm = float(np.linalg.norm(vector))
        return vector / norm if norm else vector

    def _fit(self, counted: list[Counter[str]]) -> NDArray[np.float64]:
        import numpy as np

        points = np.array([self._vector(terms) for terms in counted])
        points = points[points.any(axis=1)]
        number = min(_MOST_CLUSTERS, max(1, round(math.sqrt(len(points) / 4))), len(points))
        centres = self._seeds(points, number)
        assigned = np.full(len(points), -1)
        for _ in range(_ROUNDS):
            nearest = (points @ centres.T).argmax(axis=1)
            if (nearest == assigned).all():
                break
            assigned = nearest
            for index in range(len(centres)):
                members = points[assigned == index]
                if len(members):
                    centre = members.sum(axis=0)
                    centres[index] = centre / np.linalg.norm(centre)
        return centres

    @staticmethod
    def _seeds(points: NDArray[np.float64], number: int) -> NDArray[np.float64]:
        """Seeds far apart: each next one is the point least like those chosen so far."""
        import numpy as np

        chosen = [int((points @ points.sum(axis=0)).argmax())]
        while len(chosen) < number:
            likeness = (points @ points[chosen].T).max(axis=1)
            chosen.append(int(likeness.argmin()))
        return np.array(points[chosen])


def _rarest_last(item: tuple[int, str]) -> tuple[int, str]:
    return -item[0], item[1]
