// Headless Chromium with one page, led over a pipe (the DevTools protocol), so that it needs no port and no
// library.

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import process from 'node:process'
import { setTimeout } from 'node:timers'
import { setTimeout as sleep } from 'node:timers/promises'

const PATIENCE_MS = 30_000

/** Starts it. Everything that the page complains of is put into `complaints`. */
export async function open () {
  const profile = await mkdtemp(join(tmpdir(), 'tidegate-chromium-'))
  const child = spawn('chromium', [
    '--headless', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--remote-debugging-pipe',
    '--no-first-run', '--no-default-browser-check', '--disable-background-networking',
    '--disable-component-update', '--disable-sync', '--disable-default-apps', '--disable-extensions',
    '--log-level=3', '--hide-scrollbars', `--user-data-dir=${profile}`, 'about:blank'
  ], { stdio: ['ignore', 'ignore', 'inherit', 'pipe', 'pipe'] })
  const [, , , orders, answers] = child.stdio
  const waiting = new Map()
  const heard = []
  let [number, rest, session] = [0, '', undefined]
  answers.setEncoding('utf8').on('data', text => {
    const messages = (rest + text).split('\0')
    rest = messages.pop()
    for (const { id, result, error, method, params } of messages.map(message => JSON.parse(message))) {
      if (id === undefined) heard.forEach(hear => hear(method, params))
      else if (error) waiting.get(id)?.reject(new Error(error.message))
      else waiting.get(id)?.resolve(result)
      waiting.delete(id)
    }
  })
  const send = (method, params = {}) => new Promise((resolve, reject) => {
    number += 1
    waiting.set(number, { resolve, reject })
    orders.write(`${JSON.stringify({ id: number, method, params, sessionId: session })}\0`)
  })

  const { targetId } = await send('Target.createTarget', { url: 'about:blank' })
  session = (await send('Target.attachToTarget', { targetId, flatten: true })).sessionId
  const complaints = []
  heard.push((method, params) => {
    if (method === 'Runtime.exceptionThrown') complaints.push(params.exceptionDetails.exception?.description ?? params.exceptionDetails.text)
    if (method === 'Runtime.consoleAPICalled' && params.type === 'error') complaints.push(params.args.map(one => one.value ?? one.description).join(' '))
    if (method === 'Log.entryAdded' && params.entry.level === 'error') complaints.push(`${params.entry.text} ${params.entry.url ?? ''}`)
  })
  for (const domain of ['Page', 'Runtime', 'Log', 'Network']) await send(`${domain}.enable`)
  // A page that has not the focus hears no keys.
  await send('Page.bringToFront')
  await send('Emulation.setFocusEmulationEnabled', { enabled: true })

  /** The value of an expression in the page. */
  async function value (expression) {
    const { result, exceptionDetails } = await send('Runtime.evaluate', { expression, awaitPromise: true, returnByValue: true })
    if (exceptionDetails) throw new Error(`${expression}: ${exceptionDetails.exception?.description ?? exceptionDetails.text}`)
    return result.value
  }

  /** Waits until an expression is true. */
  async function until (expression, what = expression) {
    const end = Date.now() + PATIENCE_MS
    while (!await value(`Boolean(${expression})`).catch(() => false)) {
      if (Date.now() > end) throw new Error(`waited in vain for: ${what}\n${await value('document.body.innerText')}`)
      await sleep(50)
    }
  }

  return {
    complaints,
    send,
    value,
    until,
    go: url => send('Page.navigate', { url }),
    /** Types into what has the focus. */
    type: text => send('Input.insertText', { text }),
    /** Presses a key with no text, as Tab. */
    async press (key, code) {
      for (const type of ['rawKeyDown', 'keyUp']) await send('Input.dispatchKeyEvent', { type, key, code: key, windowsVirtualKeyCode: code })
    },
    size: (width, height, mobile) => send('Emulation.setDeviceMetricsOverride', { width, height, deviceScaleFactor: 1, mobile }),
    colours: scheme => send('Emulation.setEmulatedMedia', { features: [{ name: 'prefers-color-scheme', value: scheme }] }),
    async picture (path) {
      await writeFile(path, Buffer.from((await send('Page.captureScreenshot', { format: 'png' })).data, 'base64'))
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
setTimeout(() => { console.log('stuck'); process.exit(1) }, 4 * PATIENCE_MS).unref()
