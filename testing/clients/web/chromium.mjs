// Headless Chromium with one page, controlled over a pipe by the DevTools protocol: no port and no library is
// needed.

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import process from 'node:process'
import { setTimeout } from 'node:timers'
import { setTimeout as sleep } from 'node:timers/promises'

const PATIENCE_MS = 30_000

/** Starts it. `errors` collects all errors that the page reports. */
export async function open () {
  const profile = await mkdtemp(join(tmpdir(), 'tidegate-chromium-'))
  const child = spawn('chromium', [
    '--headless', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--remote-debugging-pipe',
    '--no-first-run', '--no-default-browser-check', '--disable-background-networking',
    '--disable-component-update', '--disable-sync', '--disable-default-apps', '--disable-extensions',
    '--log-level=3', '--hide-scrollbars', `--user-data-dir=${profile}`, 'about:blank'
  ], { stdio: ['ignore', 'ignore', 'inherit', 'pipe', 'pipe'] })
  const [, , , requests, responses] = child.stdio
  const waiting = new Map()
  const listeners = []
  const answered = []
  let [number, rest, session] = [0, '', undefined]
  responses.setEncoding('utf8').on('data', text => {
    const messages = (rest + text).split('\0')
    rest = messages.pop()
    for (const { id, result, error, method, params } of messages.map(message => JSON.parse(message))) {
      if (id === undefined) listeners.forEach(listen => listen(method, params))
      else if (error) waiting.get(id)?.reject(new Error(error.message))
      else waiting.get(id)?.resolve(result)
      waiting.delete(id)
    }
  })
  const send = (method, params = {}) => new Promise((resolve, reject) => {
    number += 1
    waiting.set(number, { resolve, reject })
    requests.write(`${JSON.stringify({ id: number, method, params, sessionId: session })}\0`)
  })

  const { targetId } = await send('Target.createTarget', { url: 'about:blank' })
  session = (await send('Target.attachToTarget', { targetId, flatten: true })).sessionId
  const errors = []
  listeners.push((method, params) => {
    if (method === 'Runtime.exceptionThrown') errors.push(params.exceptionDetails.exception?.description ?? params.exceptionDetails.text)
    if (method === 'Runtime.consoleAPICalled' && params.type === 'error') errors.push(params.args.map(one => one.value ?? one.description).join(' '))
    if (method === 'Log.entryAdded' && params.entry.level === 'error') errors.push(`${params.entry.text} ${params.entry.url ?? ''}`)
  })
  for (const domain of ['Page', 'Runtime', 'Log', 'Network']) await send(`${domain}.enable`)
  // A page without focus gets no key events.
  await send('Page.bringToFront')
  await send('Emulation.setFocusEmulationEnabled', { enabled: true })

  /** Returns the value of an expression in the page. */
  async function value (expression) {
    const { result, exceptionDetails } = await send('Runtime.evaluate', { expression, awaitPromise: true, returnByValue: true })
    if (exceptionDetails) throw new Error(`${expression}: ${exceptionDetails.exception?.description ?? exceptionDetails.text}`)
    return result.value
  }

  /** Waits until an expression in the page is true. */
  async function until (expression, what = expression) {
    const end = Date.now() + PATIENCE_MS
    while (!await value(`Boolean(${expression})`).catch(() => false)) {
      if (Date.now() > end) throw new Error(`timed out waiting for ${what}\n${await value('document.body.innerText')}`)
      await sleep(50)
    }
  }

  return {
    errors,
    send,
    value,
    until,
    /** Answers requests whose URL matches a pattern with 200 and what `answer` returns, as JSON. */
    async answer (urlPattern, answer) {
      const part = urlPattern.replaceAll('*', '')
      const listener = (method, params) => {
        if (method !== 'Fetch.requestPaused' || !params.request.url.includes(part)) return
        send('Fetch.fulfillRequest', {
          requestId: params.requestId,
          responseCode: 200,
          responseHeaders: [{ name: 'Content-Type', value: 'application/json' }],
          body: Buffer.from(JSON.stringify(answer(params.request))).toString('base64')
        })
      }
      listeners.push(listener)
      answered.push({ urlPattern, listener })
      await send('Fetch.enable', { patterns: answered.map(({ urlPattern }) => ({ urlPattern })) })
    },
    /** Lets requests reach the tracker again. */
    async stopAnswering () {
      for (const { listener } of answered.splice(0)) listeners.splice(listeners.indexOf(listener), 1)
      await send('Fetch.disable')
    },
    go: url => send('Page.navigate', { url }),
    /** Types text into the focused element. */
    type: text => send('Input.insertText', { text }),
    /** Presses a key that enters no text, such as Tab. */
    async press (key, code, text) {
      for (const type of [text ? 'keyDown' : 'rawKeyDown', 'keyUp']) await send('Input.dispatchKeyEvent', { type, key, code: key, windowsVirtualKeyCode: code, text })
    },
    /** Presses the key of a character. */
    async character (key) {
      for (const type of ['keyDown', 'keyUp']) await send('Input.dispatchKeyEvent', { type, key, text: key })
    },
    /** Calls `handle` with method and parameters of each event of the browser. */
    listen: handle => listeners.push(handle),
    size: (width, height, mobile) => send('Emulation.setDeviceMetricsOverride', { width, height, deviceScaleFactor: 1, mobile }),
    colours: scheme => send('Emulation.setEmulatedMedia', { features: [{ name: 'prefers-color-scheme', value: scheme }] }),
    /** Writes a picture of the whole page, but not of more than `high` pixels of it. */
    async picture (path, high = 4000) {
      const { cssContentSize: { width, height } } = await send('Page.getLayoutMetrics')
      const clip = { x: 0, y: 0, width, height: Math.min(height, high), scale: 1 }
      const { data } = await send('Page.captureScreenshot', { format: 'png', captureBeyondViewport: true, clip })
      await writeFile(path, Buffer.from(data, 'base64'))
    },
    async close () {
      send('Browser.close').catch(() => {})
      await Promise.race([once(child, 'exit'), sleep(5000)])
      child.kill('SIGKILL')
      await rm(profile, { recursive: true, force: true, maxRetries: 5 })
    }
  }
}

// A browser that hangs must not hang the test.
setTimeout(() => { console.log('the browser hangs'); process.exit(1) }, 8 * PATIENCE_MS).unref()
