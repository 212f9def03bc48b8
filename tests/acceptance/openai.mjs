// The official client for JavaScript, unmodified.
import OpenAI from "openai"

const client = new OpenAI({ baseURL: process.argv[2] + "/v1", apiKey: "none" })
const model = "prober"
const weather = {
  type: "function", name: "weather", description: "The weather.", strict: false,
  parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
}

const collect = async stream => {
  const found = []
  for await (const each of stream) found.push(each)
  return found
}

const found = {}
found.models = (await client.models.list()).data.map(each => each.id).includes(model)

const first = await client.responses.create({ model, input: "hello there" })
found.text = first.output_text
const second = await client.responses.create({
  model, input: "and again", previous_response_id: first.id,
})
found.continued = second.output_text

const events = await collect(await client.responses.create({ model, input: "a b", stream: true }))
found.events = events[0].type + " … " + events.at(-1).type
found.streamed = events.filter(x => x.type === "response.output_text.delta").map(x => x.delta).join("")
const rest = await collect(await client.responses.retrieve(
  events[0].response.id, { stream: true, starting_after: events[2].sequence_number },
))
found.resumed = rest.at(-1).response.output_text === events.at(-1).response.output_text

const asked = await client.responses.create({ model, input: "?", tools: [weather] })
const call = asked.output.find(item => item.type === "function_call")
found.call = [call.name, JSON.parse(call.arguments)]
const answered = await client.responses.create({
  model, tools: [weather], previous_response_id: asked.id,
  input: [{ type: "function_call_output", call_id: call.call_id, output: "sunny" }],
})
found.answered = answered.output_text

const background = await client.responses.create({ model, input: "later", background: true })
let polled = background
while (["queued", "in_progress"].includes(polled.status)) {
  polled = await client.responses.retrieve(background.id)
}
found.background = [background.status, polled.output_text]
found.cancelled = (await client.responses.cancel(background.id)).status

const messages = [{ role: "user", content: "one two" }]
const completion = await client.chat.completions.create({ model, messages })
found.chat = completion.choices[0].message.content
const runner = client.chat.completions.stream({
  model, messages: [{ role: "user", content: "?" }],
  tools: [{ type: "function", function: {
    name: weather.name, description: weather.description, parameters: weather.parameters,
  } }],
})
const chosen = (await runner.finalChatCompletion()).choices[0]
found.chat_call = [chosen.finish_reason, chosen.message.tool_calls[0].function.name]

const refused = await client.responses.create({ model: "nobody", input: "x" }).catch(error => error)
found.refused = [refused.constructor.name, refused.status, refused.code]
console.log(JSON.stringify(found))
