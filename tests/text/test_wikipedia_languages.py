"""Wikitext as it is written in twelve languages: text of templates, links to files, variants, WikiExtractor's files."""

import bz2
import json

import pytest
from tests.refusals import refusal

from albert.runtime.errors import DamagedData
from albert.text.corpus import read_corpus
from albert.text.readers import CorpusReport

pytest.importorskip("mwparserfromhell", reason="needs the extra [wikipedia]: mwparserfromhell")

# fmt: off
PAGES = {
    "en": [
        (
            "It covers {{convert|12|sqmi|km2}} and has {{formatnum:4200}} people.",
            "It covers 12 sq mi and has 4200 people.",
        ),
        ("The mast is {{cvt|3|to|4|m|ft}} high, {{frac|1|2}} as wide.", "The mast is 3 to 4 m high, 1/2 as wide."),
        ("He is {{convert|5|ft|11|in|cm}} tall.", "He is 5 ft 11 in tall."),
        ("A mass of {{val|1.5|0.2|e=3|u=kg}} fell.", "A mass of 1.5±0.2×10^3 kg fell."),
        (
            "They call it {{lang|fr|la grange}}, {{nowrap|a barn}} ({{abbr|abt.|about}} 1900).",
            "They call it la grange, a barn (abt. 1900).",
        ),
        ("She met {{ill|Ida Berg|de|Ida Berg (Malerin)}} there.", "She met Ida Berg there."),
        ("He wrote:{{blockquote|Rain again.}}Then he left.", "He wrote:\nRain again.\nThen he left."),
        (
            "A barn{{sfn|Berg|1900|p=3}} burned.{{citation needed|date=May 2020}} It was old.{{some note|x}}",
            "A barn burned. It was old.",
        ),
        ("It has {{population of|Berg}} people. It is old.", "It is old."),
        ("Read {{angbr|a}} well. Vowels are {{IPA|a}}, {{IPA|e}} and so on.", "Read ⟨a⟩ well."),
        ("Ada {{IPAc-en|a}} (German: {{IPA|a}}) was here ({{x|y}}; born 1815).", "Ada (German) was here (born 1815)."),
        ("It cost {{USD|5}} {{circa|1900}}{{snd}}a lot.", "It cost $5 c. 1900 – a lot."),
        ("Built {{start date|1900|5|6}} by {{ship|HMS|Owl}} sailors.", "Built 6 May 1900 by HMS Owl sailors."),
        ("[[Image:A.jpg|thumb|The barn]][[Archivo:B.svg|200px|Otra]]The barn.", "The barn."),
        ("{{Infobox barn\n| name = {{lang|fr|x}}\n}}\nThe barn.", "The barn."),
        ("{{coord|5|N|6|E}} The barn stands.", "The barn stands."),
        ("It lies at {{coord|5|N|6|E}}. It is old. {{coord|5|N|6|E|display=title}}", "It is old."),
        ("__NOTOC__A barn. <includeonly>x</includeonly>Then [[fire. It ended.", "A barn. Then fire. It ended."),
        ("A barn. An open {{box stands. It is old.", "A barn. An open box stands. It is old."),
        ("It stood {{as of|2015|lc=y}} {{--}} alone.", "It stood as of 2015 – alone."),
        ("Let <math>x</math> be a barn. It holds {{val|5|ul=degC}} well.", "It holds 5 °C well."),
    ],
    "de": [
        (
            "Er liegt {{Höhe|812|DE-NHN}} hoch, {{nowrap|12 km}} weit ({{enS|barn}}).",
            "Er liegt 812 m hoch, 12 km weit (barn).",
        ),
        (
            "[[Datei:Turm.jpg|mini|hochkant|Der Turm]][[Bild:Tor.png|thumb|Tor]]Der Turm steht.[[Kategorie:Turm]]",
            "Der Turm steht.",
        ),
        (
            "Man sagt: {{Zitat|Es regnet.}} Das stimmt.<ref>{{Literatur|Titel=x}}</ref>",
            "Man sagt: Es regnet. Das stimmt.",
        ),
        ("Er wurde am {{Datum|5|3|1920}} gebaut. Er steht in {{JPN}}. Er ist alt.", "Er ist alt."),
        ("Im 19. Jahrhundert hatte er {{EWZ|DE|1}} Einwohner. Er ist alt.", "Er ist alt."),
    ],
    "fr": [
        (
            "Il mesure {{unité|12|km|2}} au {{s|XIX|e}}, le {{date|5|mai|1900}}.",
            "Il mesure 12 km2 au XIXe siècle, le 5 mai 1900.",
        ),
        ("Le {{1er}} roi, {{nombre|4200|habitants}}, {{langue|en|barn}}.", "Le 1er roi, 4200 habitants, barn."),
        (
            "{{Citation|Il pleut}} dit {{M.|Berg}} à {{nobr|12 h}}.{{Référence nécessaire}}",
            "Il pleut dit M. Berg à 12 h.",
        ),
        ("[[Fichier:A.jpg|vignette|redresse|La tour]][[Image:B.jpg|thumb|x]]La tour.[[Catégorie:Tour]]", "La tour."),
        ("Voir {{lien|langue=de|trad=Turm|texte=la tour}} et {{XVIIIe siècle}}.", "Voir la tour et XVIIIe siècle."),
    ],
    "es": [
        ("Mide {{unidad|12|km}} y {{convertir|3|m|ft}} en el {{siglo|XIX||s}}.", "Mide 12 km y 3 m en el siglo XIX."),
        (
            "[[Imagen:Molino.jpg|thumb|200px|Un molino]][[Archivo:B.jpg|miniaturadeimagen|x]]Un molino.[[Categoría:M]]",
            "Un molino.",
        ),
        ("Es {{esd|{{formatnum:4200}} m}} alto.{{cita requerida}} Fin.", "Es 4200 m alto. Fin."),
    ],
    "it": [
        ("{{Bandiera|ITA}} Roma misura {{M|3|ul=km}}. {{Cn|È antica.}}", "Roma misura 3 km. È antica."),
        (
            "Dista {{M|12|u=km|ul=km}}{{Senza fonte}} e {{nowrap|3 ore}}, {{lang|en|barn}}.",
            "Dista 12 km e 3 ore, barn.",
        ),
        ("[[Immagine:A.jpg|miniatura|destra|La torre]]La torre.[[Categoria:Torri]]", "La torre."),
    ],
    "nl": [
        ("Het is {{convert|3|m|ft}} hoog.{{Bron?||2020}}", "Het is 3 m hoog."),
        ("[[Afbeelding:A.jpg|thumb|De toren]][[Bestand:B.jpg|miniatuur|x]]De toren.[[Categorie:Toren]]", "De toren."),
    ],
    "pl": [
        ("Ma {{formatnum:4200}} osób ({{ang.|barn}}) i {{nowrap|12 km}}.", "Ma 4200 osób i 12 km."),
        ("[[Plik:A.jpg|thumb|Wieża]][[Grafika:B.jpg|mały|x]]Wieża stoi.[[Kategoria:Wieże]]", "Wieża stoi."),
    ],
    "pt": [
        ("Tem {{fmtn|4200|m}} e {{convert|12|km|mi}}.{{carece de fontes}}", "Tem 4200 m e 12 km."),
        (
            "[[Ficheiro:A.jpg|esquerda|A torre]][[Imagem:B.jpg|thumb|x]][[Arquivo:C.png|x]]A torre.[[Categoria:T]]",
            "A torre.",
        ),
    ],
    "ru": [
        ("__БЕЗ_ОГЛ__Башня стоит.", "Башня стоит."),
        ("Он весит {{nobr|12 кг}} ({{lang-en|barn}}), {{число|4200}} человек.", "Он весит 12 кг (barn), 4200 человек."),
        ("[[Изображение:A.jpg|мини|Башня]][[Файл:B.jpg|thumb|x]]Башня стоит.[[Категория:Башни]]", "Башня стоит."),
        ("Это {{нп5|Берг, Ида|Ида Берг|de|Ida Berg}}.{{нет АИ|1|2|2020}}", "Это Берг, Ида."),
        ("В нём {{население|Берг}} человек. Он стар.", "Он стар."),
    ],
    "zh": [
        ("-{zh-hans:软件; zh-hant:軟體}-很好，面积{{convert|12|km2|sqmi}}。", "软件很好，面积12 km²。"),
        ("[[文件:A.jpg|缩略图|塔]][[File:B.jpg|thumb|塔]]塔很高。[[Category:塔]][[分类:塔]]", "塔很高。"),
        ("他见了{{link-de|伊达|Ida Berg}}和{{le|安娜|Anna|安娜女士}}。-{T|zh:塔}-", "他见了伊达和安娜女士。"),
        ("人口{{某人口|x}}人。塔很高。-{}-", "塔很高。"),
    ],
    "ja": [
        (
            "{{読み仮名|塔|とう}}は{{仮リンク|伊田|de|Ida Berg}}が{{ルビ|建|た}}てた。{{要出典|date=2020}}",
            "塔（とう）は伊田が建てた。",
        ),
        ("__目次非表示__塔である。{{要出典|範囲=塔は古い|date=2020年}}。", "塔である。塔は古い。"),
        ("[[画像:A.jpg|サムネイル|塔]][[ファイル:B.jpg|thumb|塔]]塔は高い。[[カテゴリ:塔]]", "塔は高い。"),
    ],
    "sv": [
        ("Det är {{nowrap|12 km}} ({{lang-en|barn}}).{{källa behövs|datum=2020}}", "Det är 12 km (barn)."),
        ("[[Bild:A.jpg|miniatyr|Tornet]][[Fil:B.jpg|thumb|x]]Tornet står.[[Kategori:Torn]]", "Tornet står."),
    ],
    "cs": [("[[Soubor:A.jpg|náhled|vpravo|200px|Věž]]Věž stojí.", "Věž stojí.")],
}
# fmt: on


def dump(path, language, texts):
    pages = "".join(
        f"<page><title>P{number}</title><ns>0</ns><id>7</id><revision><id>1</id><model>wikitext</model>"
        f"<text>{text.replace('&', '&amp;').replace('<', '&lt;')}</text></revision></page>"
        for number, text in enumerate(texts)
    )
    path.write_text(f'<mediawiki xml:lang="{language}"><siteinfo/>{pages}</mediawiki>', encoding="utf-8")
    return path


@pytest.mark.parametrize("language", PAGES)
def test_the_text_of_templates_is_kept_and_files_are_not(tmp_path, language):
    path = dump(tmp_path / "pages.xml", language, [markup for markup, _ in PAGES[language]])
    assert list(read_corpus([path])) == [text for _, text in PAGES[language]]


def test_dropped_sentences_and_shown_templates_are_counted(tmp_path):
    path = dump(
        tmp_path / "pages.xml", "en", ["It has {{population of|X}} people. It is {{convert|3|m|ft}} high. End."]
    )
    report = CorpusReport()
    assert list(read_corpus([path], report=report)) == ["It is 3 m high. End."]
    said = " ".join(report.remarks())
    assert "1 sentence dropped: a formula, or a template" in said
    assert "1 template shown" in said


DOCUMENTS = """<doc id="12" url="https://example.org/?curid=12" title="The barn">
The barn

The barn &amp; the tower.
They stand.
</doc>

<doc id="13" url="https://example.org/?curid=13" title="Empty">
Empty

</doc>
<doc id="14" url="https://example.org/?curid=14" title="The tower">
A tower.
</doc>
"""


@pytest.mark.parametrize(
    "name", ["AA/wiki_00", "AA/wiki_01.bz2", "extracted.txt", "extracted.xml", "extracted.txt.bz2"]
)
def test_documents_of_wikiextractor_are_read(tmp_path, name):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    data = DOCUMENTS.encode()
    path.write_bytes(bz2.compress(data) if name.endswith(".bz2") else data)
    report = CorpusReport()
    assert list(read_corpus([tmp_path], report=report)) == ["\nThe barn & the tower.\nThey stand.", "A tower."]
    assert report.dropped == {"empty": 1}


def test_json_lines_of_wikiextractor_are_read(tmp_path):
    (tmp_path / "wiki_00").write_text(json.dumps({"id": "12", "title": "T", "text": "A tower."}) + "\n")
    assert list(read_corpus([tmp_path])) == ["A tower."]


@pytest.mark.parametrize(
    "text",
    ["<doc id='1' title='A'>\nA tower.\n", "<doc id='1'>\nA\n<doc id='2'>\nB\n</doc>\n", "<doc id='1'>\nA\n</doc>\nB"],
)
def test_damaged_documents_are_refused(tmp_path, text):
    (tmp_path / "wiki_00").write_text(text)
    with refusal(DamagedData, "wiki_00"):
        list(read_corpus([tmp_path]))
