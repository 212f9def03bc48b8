// The AI SDK, unmodified, through both of its providers for such servers.
import { createOpenResponses } from "@ai-sdk/open-responses"
import { createOpenAICompatible } from "@ai-sdk/openai-compatible"
import { generateText, jsonSchema, stepCountIs, streamText, tool } from "ai"

const base = process.argv[2] + "/v1"
const models = {
  responses: createOpenResponses({ name: "hubbub", url: base + "/responses" })("prober"),
  chat: createOpenAICompatible({ name: "hubbub", baseURL: base, includeUsage: true })("prober"),
}
const tools = {
  weather: tool({
    description: "The weather.",
    inputSchema: jsonSchema({
      type: "object", properties: { city: { type: "string" } }, required: ["city"],
    }),
    execute: async ({ city }) => "sunny in " + city,
  }),
}

const found = {}
for (const [name, model] of Object.entries(models)) {
  const plain = await generateText({ model, prompt: "hello there", maxRetries: 0 })
  const streamed = streamText({ model, prompt: "a b c", maxRetries: 0 })
  let text = ""
  for await (const piece of streamed.textStream) text += piece
  const stepped = await generateText({
    model, tools, prompt: "?", stopWhen: stepCountIs(4), maxRetries: 0,
  })
  const run = streamText({ model, tools, prompt: "?", stopWhen: stepCountIs(4), maxRetries: 0 })
  const types = []
  for await (const part of run.fullStream) types.push(part.type)
  found[name] = {
    text: plain.text, usage: plain.usage.outputTokens, finished: plain.finishReason,
    streamed: text, ended: await streamed.finishReason,
    tools: [stepped.steps.length, stepped.text],
    streamed_tools: await run.text, types: [...new Set(types)].sort(),
    reasoning: await run.steps.then(steps => steps[0].reasoningText ?? ""),
  }
}
console.log(JSON.stringify(found))
