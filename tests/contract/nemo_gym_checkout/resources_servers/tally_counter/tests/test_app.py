from unittest.mock import MagicMock

import pytest
from fastapi.testclient import TestClient
from nemo_gym.base_resources_server import BaseResourcesServerConfig
from nemo_gym.server_utils import ServerClient

from resources_servers.tally_counter.app import TallyCounter


def configured() -> TallyCounter:
    config = BaseResourcesServerConfig(
        host="127.0.0.1", port=8080, entrypoint="app.py", name="tally_counter", domain="other"
    )
    return TallyCounter(config=config, server_client=MagicMock(spec=ServerClient))


def test_the_cookie_carries_the_session() -> None:
    app = configured().setup_webserver()
    client = TestClient(app)
    seeded = client.post("/seed_session", json={"initial_count": 3})
    assert list(seeded.cookies) == ["TallyCounter___tally_counter"]
    client.post("/add", json={"count": 4})
    assert client.post("/get_count").json() == {"count": 7}
    other = TestClient(app)
    other.post("/seed_session", json={"initial_count": 100})
    assert other.post("/get_count").json() == {"count": 100}
    assert client.post("/get_count").json() == {"count": 7}


def test_a_counter_that_was_not_seeded_raises() -> None:
    with pytest.raises(KeyError):
        TestClient(configured().setup_webserver()).post("/add", json={"count": 4})
