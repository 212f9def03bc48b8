// Every package that is tested with can be loaded, and the hub can be reached.
import "@ai-sdk/open-responses";
import "@ai-sdk/openai-compatible";
import "ai";
import OpenAI from "openai";

const [url] = process.argv.slice(2);
const answer = await fetch(`${url}/health`);
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none" });
console.log(JSON.stringify({ health: await answer.json(), base: client.baseURL }));
