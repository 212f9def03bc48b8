// A fake of the providers' interfaces that others have written, until its input is closed.
import { LLMock } from "@copilotkit/aimock";

const mock = new LLMock({ port: 0, strict: true });
const down = { message: "no such thing", type: "invalid_request_error" };
mock.addFixture({ match: { model: "claude-down" }, response: { error: down, status: 400 } });
mock.addFixture({
  match: { userMessage: "weather", hasToolResult: false },
  response: {
    toolCalls: [{ name: "get_weather", arguments: '{"city":"Paris"}' }],
    reasoning: "Look it up.",
  },
});
mock.addFixture({
  match: { userMessage: "weather", hasToolResult: true },
  response: { content: "It is sunny.", reasoning: "Say it." },
});
await mock.start();
console.log(mock.url);
process.stdin.resume();
process.stdin.on("end", async () => {
  await mock.stop();
  process.exit(0);
});
