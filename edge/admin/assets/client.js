// @ts-check
// The API: requests with the session's cookie and the header that changes need. And what the browser remembers.

/**
 * @param {number} status
 * @param {string} text
 */
const problem = (status, text) => Object.assign(new Error(text), { status })

/**
 * @param {string} method
 * @param {string} path
 * @param {unknown} [body] text, or a value to send as JSON
 * @returns {Promise<any>} what the response has: JSON or text
 */
async function send(method, path, body) {
  /** @type {Record<string, string>} */
  const headers = { 'X-Tidegate': '1' }
  const text = typeof body === 'string' || body instanceof Blob ? body : undefined
  if (body !== undefined) headers['Content-Type'] = text === undefined ? 'application/json' : 'text/plain'
  const answer = await fetch(path, {
    method,
    headers,
    body: body === undefined ? undefined : (text ?? JSON.stringify(body))
  }).catch(() => {
    throw problem(0, 'No response from tidegate. Is it running?')
  })
  const received = await answer.text()
  const isJson = received !== '' && answer.headers.get('Content-Type')?.includes('json')
  const data = isJson ? JSON.parse(received) : received
  if (!answer.ok) {
    if (answer.status === 401) dispatchEvent(new Event('signed-out'))
    throw problem(answer.status, data?.detail ?? `${answer.status} ${answer.statusText}`)
  }
  return data
}

const prefix = '/api/v1'
/** @typedef {(path: string, body?: unknown) => Promise<any>} Call */
/**
 * `get`, `post`, `put`, `patch` and `delete`, each with a path and a body if any. Throw an error with a `status`.
 * @type {Record<string, Call>}
 */
export const api = Object.fromEntries(
  ['get', 'post', 'put', 'patch', 'delete'].map(method => [
    method,
    (path, body) => send(method.toUpperCase(), prefix + path, body)
  ])
)

export const session = {
  current: () => send('GET', '/session'),
  /** @param {string} token */
  open: token => send('POST', '/session', { token }),
  close: () => send('DELETE', '/session')
}

/**
 * Runs `act` each `period` in milliseconds while the page can be seen. Returns a function that ends it.
 * @param {() => void} act
 * @param {number} period
 */
export function repeat(act, period) {
  const timer = setInterval(() => {
    if (!document.hidden) act()
  }, period)
  return () => clearInterval(timer)
}

/**
 * Follows an event stream: calls `handle` with name and data of each event. Returns a function that ends it.
 * @param {string} path
 * @param {string[]} names
 * @param {(name: string, data: any) => void} handle
 * @param {(isConnected: boolean) => void} connected
 */
export function follow(path, names, handle, connected = () => {}) {
  const source = new EventSource(prefix + path)
  for (const name of names) source.addEventListener(name, event => handle(name, JSON.parse(event.data)))
  source.onopen = () => connected(true)
  source.onerror = () => {
    connected(false)
    // The browser reconnects unless the stream was refused: then the session may have ended.
    if (source.readyState === EventSource.CLOSED)
      session.current().then(
        known => known || dispatchEvent(new Event('signed-out')),
        () => {}
      )
  }
  return () => source.close()
}

// What this browser remembers: nothing, if its settings forbid that.
/** @param {string} name */
export const stored = name => {
  try {
    return localStorage.getItem(name)
  } catch {
    return null
  }
}
/**
 * @param {string} name
 * @param {string} value
 */
export const store = (name, value) => {
  try {
    localStorage.setItem(name, value)
  } catch {}
}
