// Tests the dashboard in headless Chromium: sign-in with a token, the content of every page, changes by its
// forms, live metrics, and neither console errors nor violations of the content security policy.
//
//     node dashboard.mjs HOST:PORT [FOLDER]
//
// HOST:PORT takes announces; the dashboard is at 127.0.0.1:6970, and its token in TIDEGATE_ADMIN_TOKEN.
// Screenshots of all pages go to FOLDER, if it is given.

import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import process from 'node:process'
import { open } from './chromium.mjs'

const [tracker, folder] = process.argv.slice(2)
const admin = process.env.TIDEGATE_ADMIN ?? '127.0.0.1:6970'
const token = process.env.TIDEGATE_ADMIN_TOKEN
const hash = Buffer.from('a torrent of twenty!').toString('hex')

const page = await open()
const picture = name => folder && page.picture(join(folder, `${name}.png`))
const text = selector => page.value(`document.querySelector(${JSON.stringify(selector)})?.innerText`)
const has = words => `document.body.innerText.includes(${JSON.stringify(words)})`
const click = label => page.value(`[...document.querySelectorAll('button, nav a')].findLast(one => one.innerText === ${JSON.stringify(label)}).click()`)
async function write (selector, words) {
  await page.value(`document.querySelector(${JSON.stringify(selector)}).focus()`)
  await page.value(`document.querySelector(${JSON.stringify(selector)}).select()`)
  await page.type(words)
}

async function announce (number, left) {
  const id = `-TG0001-${String(number).padStart(12, '0')}`
  const query = `info_hash=${hash.replace(/../g, '%$&')}&peer_id=${id}&port=${7000 + number}&left=${left}&event=started`
  return (await fetch(`http://${tracker}/announce?${query}`)).text()
}

// Sign-in.
await page.size(1280, 800, false)
await page.send('Page.addScriptToEvaluateOnNewDocument', {
  source: 'globalThis.violations = []; addEventListener("securitypolicyviolation", event => violations.push(`${event.violatedDirective} ${event.blockedURI}`))'
})
await page.go(`http://${admin}/`)
await page.until('document.querySelector("input[name=token]")', 'the form')
assert.deepEqual(page.errors, [])
await picture('sign-in')
await write('input[name=token]', `tg_${'x'.repeat(32)}`)
await click('Sign in')
await page.until(has('unknown or revoked token'), 'the refusal of a wrong token')
// The browser notes that a request was answered with 401.
assert.equal(page.errors.splice(0).length, 1)
await write('input[name=token]', token)
await click('Sign in')
await page.until(has('Requests by protocol'), 'the overview')
assert.equal(await page.value('document.cookie'), '', 'the cookie must not be visible to scripts')

const { records } = await (await fetch(`http://${admin}/api/v1/stats`, { headers: { Authorization: `Bearer ${token}` } })).json()
if (!records.durable) await page.until(has('Records are in memory only'), 'the notice about records')

// Live metrics: a torrent is added while the page is open.
await announce(1, 0)
await announce(2, 5)
await page.until('document.querySelectorAll(".stat .value")[1].innerText === "1"', 'the torrent to be counted')
await page.until('document.querySelectorAll(".stat .value")[2].innerText === "2"', 'its peers to be counted')
await page.until('document.querySelectorAll(".chart .line").length >= 6', 'lines in the charts')
await picture('overview')

// Tab reaches the link to the content first.
await page.value('document.body.tabIndex = -1; document.body.focus()')
await page.press('Tab', 9)
await page.until('document.activeElement.className === "skip button"', 'the focus to go to the content')

// Torrents: the list, one torrent, and freezing it.
await click('Torrents')
await page.until(has(hash), 'the torrent in the list')
await picture('torrents')
await page.value(`location.hash = '#/torrent/${hash}'`)
await page.until(has('Last announce'), 'its peers')
await picture('torrent')
await click('Freeze')
await page.until('document.querySelector(".tag.bad")', 'the torrent to be frozen')
assert.match(await announce(3, 5), /failure reason.*frozen/s)
await click('Unfreeze')
await page.until('document.querySelector(".tag.good")', 'the torrent to be served')
assert.doesNotMatch(await announce(3, 5), /failure reason/)

// Changes by forms.
await click('Access lists')
await page.until('document.querySelector("textarea")', 'the form for entries')
await write('textarea', `${'ab'.repeat(20)}\n${'cd'.repeat(20)}`)
await click('Add')
await page.until(`document.querySelectorAll('tbody tr').length === 2`, 'two entries')
await picture('lists')
await click('User keys')
await page.until('document.querySelector("input[name=name]")', 'the form for keys')
await write('input[name=name]', 'Ada')
const setPrivate = async value => {
  const headers = { Authorization: `Bearer ${token}`, 'Content-Type': 'application/json' }
  const body = JSON.stringify({ 'access.private': value })
  const { status } = await fetch(`http://${admin}/api/v1/config`, { method: 'PATCH', headers, body })
  assert.equal(status, 200)
}
await setPrivate(true)
await click('Create key')
await page.until('document.querySelector(".secret")', 'the key')
const key = await text('.secret')
assert.match(key, /^[A-Za-z0-9_-]{16,64}$/)
const urls = await page.value('[...document.querySelectorAll(".secret")].slice(1).map(one => one.innerText).join(" ")')
assert.match(urls, new RegExp(`http://[^ ]+/announce/${key}( |$)`))
await setPrivate(null)
await page.until(`document.querySelector('tbody td').innerText === 'Ada'`, 'the key in the table')
await picture('keys')
await click('Bans')
await page.until('document.querySelector("input[name=network]")', 'the form for bans')
await write('input[name=network]', '192.0.2.0/24')
await write('input[name=reason]', 'test')
await click('Ban')
await page.until(`document.querySelector('tbody td')?.innerText === '192.0.2.0/24'`, 'the ban')
await picture('bans')
await click('API tokens')
await page.until(has('full access'), 'tokens')
await picture('tokens')
await click('Configuration')
await page.until(has('tracker.interval_s'), 'the configuration')
await picture('configuration')
await click('Log')
await page.until(has('Log lines'), 'the log')
await picture('log')

// Nodes: no cluster; and what a node sees during a partition, which a test of the API has written.
await click('Nodes')
await page.until(has('not part of a cluster'), 'what a cluster is')
await picture('nodes-none')
// The browser notes that a request was answered with 404.
assert.deepEqual(page.errors.splice(0).length, 1)
const partition = JSON.parse(readFileSync(new URL('partition.json', import.meta.url)))
const posts = []
await page.answer('*/api/v1/cluster*', request => {
  if (request.method === 'POST') posts.push(new URL(request.url).pathname)
  return partition
})
await click('Overview')
await click('Nodes')
await page.until(has('None of the 2 other nodes is heard'), 'what is wrong')
await picture('nodes')
assert.equal(await text('h1 + .tag.bad'), 'not stored')
const cells = row => page.value(`[...document.querySelectorAll('tbody')[0].rows[${row}].cells].map(cell => cell.innerText)`)
const [own, gone, , left, ignored] = await Promise.all([0, 1, 2, 3, 4].map(cells))
assert.deepEqual(own.slice(0, 4), ['1', 'this node', 'eu-1', '1.2.3'])
assert.deepEqual([gone[1], gone[5], gone[7], gone[12]], ['gone, 31 s', '–', '31 s', 'Ignore'])
assert.deepEqual([left[1], left[7]], ['left, 30 min', ''])
assert.deepEqual([ignored[1], ignored[12]], ['ignored', 'Heed'])
for (const words of ['no leader', 'secret', 'node 2 has been silent for 10 s', '630 blocks']) {
  assert.ok(await page.value(has(words)), words)
}
await click('Heed')
await page.until(has('Node 5 is heard again'), 'node 5 to be heard')
await click('Ignore')
await page.until(has('Ignore node 4?'), 'the question')
await page.value('document.querySelector("dialog button.danger").click()')
await page.until(has('Node 4 is ignored'), 'node 4 to be ignored')
await click('Fetch records from a neighbour')
await page.until(has('records are being fetched'), 'the records to be fetched')
assert.deepEqual(posts, ['nodes/5/heed', 'nodes/4/ignore', 'resync'].map(path => `/api/v1/cluster/${path}`))
// All is well again: the page says so without a reload.
Object.assign(partition, { state: 'linked', summary: 'All nodes are heard.', problems: [] })
await page.until('document.querySelector("h1 + .tag.good")', 'the end of the partition')
assert.ok(!await page.value(has('None of the 2')))

// The cookie alone does not authorize changes.
const { cookies } = await page.send('Network.getCookies', { urls: [`http://${admin}/`] })
const [{ name, value, httpOnly, sameSite }] = cookies
assert.deepEqual({ httpOnly, sameSite }, { httpOnly: true, sameSite: 'Strict' })
const forged = headers => fetch(`http://${admin}/api/v1/bans/192.0.2.0/24`, { method: 'DELETE', headers: { Cookie: `${name}=${value}`, ...headers } })
for (const headers of [{}, { Origin: `http://${admin}` }, { 'X-Tidegate': '1' }, { 'X-Tidegate': '1', Origin: 'http://example.org' }]) {
  assert.equal((await forged(headers)).status, 403, JSON.stringify(headers))
}
assert.equal((await forged({ 'X-Tidegate': '1', Origin: `http://${admin}` })).status, 204)

// A phone with dark colours: nothing is wider than the screen.
await page.size(390, 844, true)
await page.colours('dark')
for (const label of ['Overview', 'Nodes', 'Torrents', 'Access lists', 'User keys', 'Bans', 'API tokens', 'Configuration', 'Log']) {
  await click(label)
  await page.until(`document.querySelector('h1')?.innerText === ${JSON.stringify(label)}`, label)
  await page.until('document.querySelectorAll("main .card").length > 0', `content of ${label}`)
  assert.ok(await page.value('document.documentElement.scrollWidth') <= 390, `${label} is wider than the screen`)
  await picture(`phone-${label.toLowerCase().replace(' ', '-')}`)
}
await page.size(1280, 800, false)
await click('Overview')
await page.until('document.querySelectorAll(".chart .line").length >= 6', 'lines in the charts')
await picture('overview-dark')
await click('Nodes')
await page.until('document.querySelectorAll("main .card").length > 0', 'content of Nodes')
await picture('nodes-dark')

// No errors and no violations; and a violation would be noticed.
assert.deepEqual(await page.value('violations'), [])
assert.deepEqual(page.errors, [])
await page.value('document.body.append(Object.assign(document.createElement("img"), { src: "http://192.0.2.1/x.png" }))')
await page.until('violations.length > 0', 'the policy to block an image of another host')

await click('Sign out')
await page.until('document.querySelector("input[name=token]")', 'the form')
assert.equal((await fetch(`http://${admin}/api/v1/stats`, { headers: { Cookie: `${name}=${value}` } })).status, 401)
await page.close()
process.exit(0)
