"""A small TFDS data set of ratings, for tests; importing this registers `films`."""

import numpy as np
import tensorflow_datasets as tfds

USERS, ITEMS, EACH = 40, 150, 6


def rated_by_users() -> list[tuple[str, str, int]]:
    """(user, item, time) of every rating; a user's are in the order of time."""
    rng = np.random.default_rng(1)
    return [
        (f"user {user}", f"{item}", 1000 - user + time)
        for user in range(USERS)
        for time, item in enumerate(rng.choice(ITEMS, EACH, replace=False))
    ]


class Films(tfds.core.GeneratorBasedBuilder):
    """Ratings with the features of TFDS's MovieLens."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        text = tfds.features.Text()
        features = {"movie_id": text, "timestamp": np.int64, "user_id": text}
        return tfds.core.DatasetInfo(
            builder=self, features=tfds.features.FeaturesDict(features)
        )

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples()}

    def _generate_examples(self):
        for index, (user, item, time) in enumerate(self.rated()):
            yield index, {"user_id": user, "movie_id": item, "timestamp": time}

    def rated(self):
        """The ratings that there are."""
        return rated_by_users()
