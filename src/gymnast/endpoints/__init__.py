"""Model endpoints: model servers, the upstream pool behind them, token ids and usage, and the gateway for agents."""
