"""The smallest environment with a tool: ask for the weather. Every attempt scores 1."""

from __future__ import annotations

from pydantic import BaseModel

from gymnast.kit import Attempt, Environment, Task, tool

_SKIES = ("sunny", "cloudy", "windy", "rainy", "foggy")


class Weather(BaseModel):
    city: str
    weather_description: str


class ExampleSingleToolCall(Environment[Task, None]):
    """One stateless tool; calls of a turn may run in parallel."""

    parallel_tools = True

    @tool
    async def get_weather(self, city: str) -> Weather:
        """Look up the current weather of a city.

        Args:
            city: The name of the city.
        """
        sky = _SKIES[sum(map(ord, city)) % len(_SKIES)]
        return Weather(city=city, weather_description=f"The weather in {city} is {sky}.")

    async def verify(self, attempt: Attempt[Task, None]) -> float:
        return 1.0
