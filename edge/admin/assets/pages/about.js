// @ts-check
// What this is: version, links, and the licences of what is in it.

import { api } from '../client.js'
import { liveTable } from '../components.js'
import { card, facts, h, put } from '../dom.js'
import { span, time } from '../format.js'

const LICENCES = '/licences.json'
const LINKS = [
  ['/api/v1/openapi.json', 'Description of the API (OpenAPI)'],
  ['/metrics', 'Metrics (Prometheus)'],
  ['/health/ready', 'Health']
]

export default async function about(main, { isHere }) {
  const terms = h('')
  const licences = h('details.more', h('summary', 'Licences of the programs and libraries in tidegate'))
  put(
    main,
    h('.head', h('h1', 'About')),
    h(
      '.grid',
      card(
        'span12',
        'tidegate',
        '',
        h('p', 'A BitTorrent tracker for UDP, HTTP and WebTorrent. Licence: Apache-2.0.'),
        terms
      ),
      card(
        'span12',
        'Links',
        '',
        h(
          'ul',
          LINKS.map(([href, text]) => h('li', h('a', { href }, text)))
        )
      ),
      card('span12', 'Licences', '', licences)
    )
  )
  // Long: fetched when it is opened.
  licences.addEventListener('toggle', async () => {
    if (!licences.open || licences.children.length > 1) return
    const answer = await fetch(LICENCES).catch(() => null)
    if (!answer?.ok) return licences.append(h('p.empty', 'This build has no list of licences.'))
    const table = liveTable({
      caption: 'Licences',
      key: ([name, version]) => `${name} ${version}`,
      columns: ['Name', 'Version', 'Licence'].map((title, at) => [title, row => row[at]])
    })
    table.update(await answer.json())
    licences.append(table.element)
  })
  const { version, uptime_s: up } = await api.get('/stats')
  if (!isHere()) return
  put(
    terms,
    facts([
      ['Version', version],
      ['Running for', span(up)],
      ['Started', time(Date.now() / 1000 - up)]
    ])
  )
}
