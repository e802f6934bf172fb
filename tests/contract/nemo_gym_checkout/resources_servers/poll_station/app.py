"""Sums its rows up itself."""

from collections import Counter

from nemo_gym.base_resources_server import (
    AggregateMetrics,
    AggregateMetricsRequest,
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)


class PollVerifyResponse(BaseVerifyResponse):
    vote: str


class PollStation(SimpleResourcesServer):
    config: BaseResourcesServerConfig

    async def verify(self, body: BaseVerifyRequest) -> PollVerifyResponse:
        vote = body.response.output_text.strip().lower()
        return PollVerifyResponse(**body.model_dump(), reward=float(vote in {"yes", "no"}), vote=vote)

    async def aggregate_metrics(self, body: AggregateMetricsRequest) -> AggregateMetrics:
        votes = Counter(row["vote"] for row in body.verify_responses)
        usual = await super().aggregate_metrics(body)
        return AggregateMetrics(
            agent_metrics={**usual.agent_metrics, "votes": dict(votes)}, key_metrics={"n": len(votes)}
        )


if __name__ == "__main__":
    PollStation.run_webserver()
