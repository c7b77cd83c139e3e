// What the tests of all areas use: a page of the dashboard, and ways to use it as a person does.

import { open } from '../chromium.mjs'

/** The info hash of the torrent that the tests announce. */
export const hash = Buffer.from('a torrent of twenty!').toString('hex')

/** Opens a browser. `tracker` takes announces, `admin` serves the dashboard. */
export async function start ({ tracker, admin, token }) {
  const page = await open()
  await page.size(1280, 800, false)
  await page.send('Page.addScriptToEvaluateOnNewDocument', {
    source: 'globalThis.violations = []; addEventListener("securitypolicyviolation", event => violations.push(`${event.violatedDirective} ${event.blockedURI}`))'
  })
  const quoted = JSON.stringify
  return {
    page,
    tracker,
    admin,
    token,
    url: `http://${admin}/`,
    hash,
    text: selector => page.value(`document.querySelector(${quoted(selector)})?.innerText`),
    /** An expression that is true if the page shows these words. */
    has: words => `document.body.innerText.includes(${quoted(words)})`,
    /** Clicks the last button or link with this text. */
    click: label => page.value(`[...document.querySelectorAll('button, nav a, main a')].findLast(one => one.textContent.trim() === ${quoted(label)}).click()`),
    /** Goes to a page by its path, and waits for its heading and for content. */
    async visit (path, heading) {
      await page.value(`location.hash = '#/${path}'`)
      if (heading) await page.until(`document.querySelector('h1')?.textContent === ${quoted(heading)}`, heading)
      await page.until('document.querySelectorAll("main .card").length > 0', `content of ${path}`)
    },
    async write (selector, words) {
      await page.value(`document.querySelector(${quoted(selector)}).focus()`)
      await page.value(`document.querySelector(${quoted(selector)}).select()`)
      await page.type(words)
    },
    /** Calls the API as a program does. */
    async call (method, path, body) {
      const headers = { Authorization: `Bearer ${token}`, 'Content-Type': 'application/json' }
      return fetch(`http://${admin}/api/v1${path}`, { method, headers, body: body && JSON.stringify(body) })
    },
    async announce (number, left, info = hash) {
      const id = `-TG0001-${String(number).padStart(12, '0')}`
      const query = `info_hash=${info.replace(/../g, '%$&')}&peer_id=${id}&port=${7000 + number}&left=${left}&event=started`
      return (await fetch(`http://${tracker}/announce?${query}`)).text()
    },
    /** Paths and titles of all pages in the navigation. */
    pages: () => page.value('[...document.querySelectorAll("nav a")].map(link => [link.hash.slice(2), link.textContent])')
  }
}
