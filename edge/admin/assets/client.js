// The API: requests with the session's cookie and the header that changes need. And what the browser remembers.

const problem = (status, text) => Object.assign(new Error(text), { status })

async function send (method, path, body) {
  const headers = { 'X-Tidegate': '1' }
  const isText = typeof body === 'string' || body instanceof Blob
  if (body !== undefined) headers['Content-Type'] = isText ? 'text/plain' : 'application/json'
  const answer = await fetch(path, {
    method,
    headers,
    body: body === undefined || isText ? body : JSON.stringify(body)
  }).catch(() => { throw problem(0, 'No response from tidegate. Is it running?') })
  const text = await answer.text()
  const data = text && answer.headers.get('Content-Type')?.includes('json') ? JSON.parse(text) : text
  if (!answer.ok) {
    if (answer.status === 401) dispatchEvent(new Event('signed-out'))
    throw problem(answer.status, data?.detail ?? `${answer.status} ${answer.statusText}`)
  }
  return data
}

const prefix = '/api/v1'
/** `get`, `post`, `put`, `patch` and `delete`, each with a path and a body if any. Throw an error with a `status`. */
export const api = Object.fromEntries(['get', 'post', 'put', 'patch', 'delete']
  .map(method => [method, (path, body) => send(method.toUpperCase(), prefix + path, body)]))

export const session = {
  current: () => send('GET', '/session'),
  open: token => send('POST', '/session', { token }),
  close: () => send('DELETE', '/session')
}

/** Runs `act` each `period` in milliseconds while the page can be seen. Returns a function that ends it. */
export function repeat (act, period) {
  const timer = setInterval(() => { if (!document.hidden) act() }, period)
  return () => clearInterval(timer)
}

/** Follows an event stream: calls `handle` with name and data of each event. Returns a function that ends it. */
export function follow (path, names, handle, connected = () => {}) {
  const source = new EventSource(prefix + path)
  for (const name of names) source.addEventListener(name, event => handle(name, JSON.parse(event.data)))
  source.onopen = () => connected(true)
  source.onerror = () => {
    connected(false)
    // The browser reconnects unless the stream was refused: then the session may have ended.
    if (source.readyState === EventSource.CLOSED) session.current().then(known => known || dispatchEvent(new Event('signed-out')), () => {})
  }
  return () => source.close()
}

// What this browser remembers: nothing, if its settings forbid that.
export const stored = name => { try { return localStorage.getItem(name) } catch {} }
export const store = (name, value) => { try { localStorage.setItem(name, value) } catch {} }
